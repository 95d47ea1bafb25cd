//go:build !amd64 || noasm

package cpu

func scoreMaximumVector[T float](level, []T) (T, bool)           { return 0, false }
func scoreExpVector[T float](level, []T, T, T) (T, bool)         { return 0, false }
func scoreGradientVector[T float](level, []T, []T, T, T, T) bool { return false }
