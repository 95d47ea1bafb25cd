//go:build unix && !linux && !race

package cpu

func adviseHugePages([]byte) {}
