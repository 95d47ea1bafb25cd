package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"slices"
	"strings"
)

// assembly is the name of the kernel's version for one level.
func (k kernel) assembly(l level) string { return k.name + l.suffix }

// parameter is one of a kernel's.
type parameter struct {
	name, kind string
}

func (k kernel) parameters() (in []parameter, returns bool) {
	e, err := parser.ParseExpr("func" + k.signature)
	if err != nil {
		panic(err)
	}
	f := e.(*ast.FuncType)
	for _, field := range f.Params.List {
		var kind strings.Builder
		printer.Fprint(&kind, token.NewFileSet(), field.Type)
		for _, name := range field.Names {
			in = append(in, parameter{name.Name, kind.String()})
		}
	}
	return in, f.Results != nil
}

// leveled is the signature of the function that chooses.
func (k kernel) leveled() string { return "(l level, " + strings.TrimPrefix(k.signature, "(") }

// choice is the function that cuts the slices to one length and calls the version of a level.
func (k kernel) choice() string {
	in, returns := k.parameters()
	var names, cut, cuts []string
	for i, p := range in {
		names = append(names, p.name)
		if i > 0 && strings.HasPrefix(p.kind, "[]") && !slices.Contains(k.free, p.name) {
			cut = append(cut, p.name)
			cuts = append(cuts, fmt.Sprintf("%s[:len(%s)]", p.name, in[0].name))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n// %sVector %s\nfunc %sVector%s {\n", k.name, k.doc, k.name, k.leveled())
	if len(cut) > 0 {
		fmt.Fprintf(&b, "%s = %s\n", strings.Join(cut, ", "), strings.Join(cuts, ", "))
	}
	call := "%s(" + strings.Join(names, ", ") + ")\n"
	if returns {
		fmt.Fprintf(&b, "if l == levelAVX2 {\nreturn "+call+"}\nreturn "+call+"}\n", k.assembly(levels[0]), k.assembly(levels[1]))
	} else {
		fmt.Fprintf(&b, "if l == levelAVX2 {\n"+call+"} else {\n"+call+"}\n}\n", k.assembly(levels[0]), k.assembly(levels[1]))
	}
	for _, l := range levels {
		fmt.Fprintf(&b, "\n//go:noescape\nfunc %s%s\n", k.assembly(l), k.signature)
	}
	return b.String()
}

// stub stands where no level has assembly, and is never called.
func (k kernel) stub() string {
	return fmt.Sprintf("\nfunc %sVector%s { panic(\"cpu: no vector kernels\") }\n", k.name, k.leveled())
}
