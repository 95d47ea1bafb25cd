package main

import (
	"os"
	"testing"
)

func TestPageIsFresh(t *testing.T) {
	want, err := render("../../train/config.go")
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != string(want) {
		t.Error("docs/config.md is stale; run go generate ./train")
	}
}
