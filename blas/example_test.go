package blas_test

import (
	"fmt"

	"github.com/lethe-go/lethe/blas"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A stock Gorgonia program; the first line of main is the only one that knows Lethe.
func Example() {
	gorgonia.Use(blas.Implementation{})

	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, gorgonia.Float32, gorgonia.WithShape(2, 3), gorgonia.WithName("x"),
		gorgonia.WithValue(tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float32{1, 2, 3, 4, 5, 6}))))
	w := gorgonia.NewMatrix(g, gorgonia.Float32, gorgonia.WithShape(3, 2), gorgonia.WithName("w"),
		gorgonia.WithValue(tensor.New(tensor.WithShape(3, 2), tensor.WithBacking([]float32{1, 0, 0, 1, 1, 1}))))
	y := gorgonia.Must(gorgonia.Mul(x, w))

	machine := gorgonia.NewTapeMachine(g)
	defer machine.Close()
	if err := machine.RunAll(); err != nil {
		fmt.Println(err)
	}
	fmt.Println(y.Value().Data())
	// Output: [4 5 10 11]
}
