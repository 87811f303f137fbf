//go:build !(amd64 || arm64) || noasm

package team

func pause() {}
