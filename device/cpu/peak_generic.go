//go:build !amd64 || noasm

package cpu

func peakFLOPsPerRound(level) int { return 2 * peakSums }

func fmaRounds(_ level, n int) { fmaRoundsGo(n, 0, 0) }
