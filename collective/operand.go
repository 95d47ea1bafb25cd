package collective

import (
	"fmt"

	"github.com/lethe-go/lethe/device"
)

// sameRows refuses rows that may differ between ranks.
func sameRows(s device.Spec) error {
	if s.Rows != 0 {
		return fmt.Errorf("the rows of %v may differ between ranks", s)
	}
	return nil
}

// fixedRows refuses also what has no rows.
func fixedRows(s device.Spec) error {
	if len(s.Shape) < 1 {
		return fmt.Errorf("want rows, have the scalar %v", s)
	}
	return sameRows(s)
}

// summable refuses what the ranks cannot add up.
func summable(s device.Spec) error {
	if !Summable(s.DType) {
		return fmt.Errorf("no sum of %v", s)
	}
	return nil
}

func withRows(s device.Spec, rows int) device.Spec {
	s = s.WithShape(s.Shape...)
	s.Shape[0] = rows
	return s
}
