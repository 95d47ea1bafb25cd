// Package spill has the places where values wait outside the device's memory between
// forward and backward: each implements [device.Spill].
package spill
