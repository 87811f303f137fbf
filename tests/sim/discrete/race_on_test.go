//go:build race

package discrete

const raceEnabled = true
