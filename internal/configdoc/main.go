// Command configdoc writes docs/config.md, the reference of all config keys, from the
// comments and defaults in package train. Its test fails while the page is stale.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"os"
	"reflect"
	"strings"
	"unicode"

	"github.com/lethe-go/lethe/internal/atomicfile"
	"github.com/lethe-go/lethe/train"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: configdoc CONFIG_GO PAGE")
	}
	page, err := render(os.Args[1])
	if err == nil {
		err = atomicfile.WriteFile(os.Args[2], page)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// render makes the page of the config's source file.
func render(source string) ([]byte, error) {
	docs, err := parseComments(source)
	if err != nil {
		return nil, err
	}
	p := &page{docs: docs}
	p.printf("# Config keys\n\n<!-- Made by go generate ./train from train/config.go. -->\n\n")
	p.printf("A config is a TOML file; a key that it does not know is an error. Every key but the tables of\noptimizer.groups can be given on the command line as `--section.key=value`, lists as `a,b`. What is not set has the default.\n")
	config := reflect.ValueOf(train.DefaultConfig())
	for i := range config.NumField() {
		p.section(config.Type().Field(i), config.Field(i))
	}
	return []byte(p.String()), p.err
}

// comments are the texts of types, and of fields as "Type.Field".
type comments map[string]string

func parseComments(source string) (comments, error) {
	file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	docs := comments{}
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.TYPE {
			continue
		}
		for _, s := range g.Specs {
			t := s.(*ast.TypeSpec)
			docs[t.Name.Name] = strings.TrimSpace(g.Doc.Text())
			if fields, ok := t.Type.(*ast.StructType); ok {
				for _, f := range fields.Fields.List {
					for _, name := range f.Names {
						docs[t.Name.Name+"."+name.Name] = strings.TrimSpace(f.Doc.Text())
					}
				}
			}
		}
	}
	return docs, nil
}

// page is written from top to bottom and keeps the first error.
type page struct {
	strings.Builder
	docs comments
	err  error
}

func (p *page) printf(format string, args ...any) { fmt.Fprintf(p, format, args...) }

// section writes about one table of the file.
func (p *page) section(f reflect.StructField, value reflect.Value) {
	p.printf("\n## [%s]\n\n%s\n\n", key(f), p.about(f.Type))
	p.keys(f.Type, value, "")
}

// keys writes a list of the keys of a struct; an array of tables is a list within.
func (p *page) keys(t reflect.Type, value reflect.Value, indent string) {
	for i := range t.NumField() {
		f := t.Field(i)
		text := p.docs[t.Name()+"."+f.Name]
		if text == "" && p.err == nil {
			p.err = fmt.Errorf("%s.%s has no comment", t.Name(), f.Name)
		}
		facts := kind(f.Type)
		if value.IsValid() && f.Type.Kind() != reflect.Pointer {
			facts += ", `" + toml(value.Field(i)) + "`"
		}
		p.printf("%s- **`%s`** (%s): %s\n", indent, key(f), facts, flow(text))
		if f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct {
			p.keys(f.Type.Elem(), reflect.Value{}, indent+"  ")
		}
	}
}

// about is the comment of a type as a sentence without the type's name.
func (p *page) about(t reflect.Type) string {
	text := strings.TrimPrefix(flow(p.docs[t.Name()]), t.Name()+" ")
	if text == "" {
		p.err = fmt.Errorf("%s has no comment", t.Name())
		return ""
	}
	// [Name] is a link in Go's documentation.
	text = strings.NewReplacer("[", "`", "]", "`").Replace(text)
	first := []rune(text)
	first[0] = unicode.ToUpper(first[0])
	return string(first)
}

func key(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("toml"), ",")
	return name
}

// flow joins the lines of a comment. Markdown is to leave it alone.
func flow(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return strings.NewReplacer("*", `\*`, "<", "&lt;", "_", `\_`).Replace(text)
}

// kind is what TOML calls the type.
func kind(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[train.Duration]():
		return "duration"
	case reflect.TypeFor[train.MemoryBudget]():
		return "bytes or fraction"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return kind(t.Elem()) + ", not set"
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int64:
		return "integer"
	case reflect.Float64:
		return "number"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Struct {
			return "array of tables"
		}
		return "list of " + kind(t.Elem()) + "s"
	}
	panic("configdoc: no name for " + t.String())
}

// toml is a default as it stands in a file.
func toml(v reflect.Value) string {
	if d, ok := v.Interface().(train.Duration); ok {
		return fmt.Sprintf("%q", d)
	}
	switch v.Kind() {
	case reflect.String:
		return fmt.Sprintf("%q", v.String())
	case reflect.Slice:
		list := make([]string, v.Len())
		for i := range list {
			list[i] = toml(v.Index(i))
		}
		return "[" + strings.Join(list, ", ") + "]"
	}
	return fmt.Sprint(v.Interface())
}
