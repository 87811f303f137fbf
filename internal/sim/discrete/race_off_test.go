//go:build accel && !race

package discrete

const raceEnabled = false
