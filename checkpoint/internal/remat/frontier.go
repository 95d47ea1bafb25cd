package remat

// Frontier returns the plans at the corners of the lower convex hull of (saved
// bytes, cost), from the one that saves the least to the cheapest. Each is the
// best plan for a range of prices; every other plan lies on the hull or above it.
// It is empty if no plan keeps what is fixed.
func (s *Solver) Frontier() []Plan {
	small, ok := s.Smallest()
	if !ok {
		return nil
	}
	cheap, _ := s.Cheapest()
	if cheap.Saved <= small.Saved {
		return []Plan{cheap}
	}
	plans := s.between([]Plan{small}, small, cheap)
	return append(plans, cheap)
}

// between appends the corners between two plans on the hull: of the plans below
// the line through both, the lowest is one.
func (s *Solver) between(corners []Plan, small, cheap Plan) []Plan {
	bytes, time := slope(small, cheap)
	few, many, value, _ := s.Solve(bytes, time)
	if value == bytes*small.Saved+time*small.Cost {
		return corners
	}
	corners = s.between(corners, small, many)
	corners = append(corners, many)
	if few.Saved == many.Saved {
		return s.between(corners, few, cheap)
	}
	return s.between(append(corners, few), few, cheap)
}

// slope gives the prices at which two plans cost the same.
func slope(small, cheap Plan) (bytes, time int64) {
	bytes, time = small.Cost-cheap.Cost, cheap.Saved-small.Saved
	a, b := bytes, time
	for b != 0 {
		a, b = b, a%b
	}
	return bytes / a, time / a
}

// Bounded is what the prices say about a number of saved bytes.
type Bounded struct {
	// Cost is a lower bound: no plan that saves no more undercuts it.
	Cost int64
	// Small saves no more than allowed. Cheap does not save much more and costs
	// less, or is Small if that is a best plan.
	Small, Cheap Plan
}

// Bound finds the best lower bound that a price of memory gives (Lagrangian
// duality; it equals that of the linear program) and the plans around the budget.
// It reports false if no plan saves so little.
func (s *Solver) Bound(budget int64) (Bounded, bool) {
	cheap, ok := s.Cheapest()
	if !ok {
		return Bounded{}, false
	}
	if cheap.Saved <= budget {
		return Bounded{cheap.Cost, cheap, cheap}, true
	}
	small, _ := s.Smallest()
	if small.Saved > budget {
		return Bounded{}, false
	}
	b := Bounded{cheap.Cost, small, cheap}
	for {
		bytes, time := slope(b.Small, b.Cheap)
		few, many, value, _ := s.Solve(bytes, time)
		b.Cost = max(b.Cost, ceilDiv(value-bytes*budget, time))
		switch {
		case value == bytes*b.Small.Saved+time*b.Small.Cost:
			return b, true
		case few.Saved <= budget:
			b.Small = few
		case many.Saved > budget:
			b.Cheap = many
		default:
			b.Small, b.Cheap = many, few
			return b, true
		}
		if b.Small.Cost <= b.Cost {
			b.Cheap = b.Small
			return b, true
		}
	}
}

// ceilDiv is a/b rounded up, for b > 0.
func ceilDiv(a, b int64) int64 {
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}
