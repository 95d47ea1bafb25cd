//go:build !amd64 || noasm

package cpu

func bestLevel() level { return levelGo }

func vectorized[T float](level) bool { return false }
