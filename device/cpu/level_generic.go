//go:build !amd64 || noasm

package cpu

func bestLevel() level { return levelGo }
