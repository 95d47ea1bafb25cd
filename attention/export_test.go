package attention

// Frequencies and ScaleOf let tests outside the package see what it computes.
func Frequencies(r RoPE) []float64 { return r.frequencies() }
func ScaleOf(c MLA) float64        { return c.scale() }
