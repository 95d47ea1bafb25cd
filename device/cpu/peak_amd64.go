//go:build amd64 && !noasm

package cpu

// peakFLOPsPerRound is the number of operations in a round of fmaRounds.
func peakFLOPsPerRound(l level) int {
	lanes := 1
	switch l {
	case levelAVX2:
		lanes = 8
	case levelAVX512:
		lanes = 16
	}
	return 2 * peakSums * lanes
}

// fmaRounds is the version of l of [fmaRoundsGo].
func fmaRounds(l level, n int) {
	switch l {
	case levelGo:
		fmaRoundsGo(n, 0, 0)
	case levelAVX2:
		fmaAVX2(n)
	default:
		fmaAVX512(n)
	}
}

// fmaAVX2 is [fmaRoundsGo] with sums of 8 float32; n is at least 1.
//
//go:noescape
func fmaAVX2(n int)

// fmaAVX512 is [fmaRoundsGo] with sums of 16 float32; n is at least 1.
//
//go:noescape
func fmaAVX512(n int)
