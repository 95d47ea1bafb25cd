package graph

// Tracer is told what a Machine does and when. It cannot change results. A [device.Recorder]
// labels what it records with the *Step while there is a Tracer.
type Tracer interface {
	// Begin is called before every step, on the goroutine that calls Run, with the
	// index of the step and the step, which is nil for index 0, the feeding of inputs,
	// and for the reading of outputs behind the last step. On a device whose memory the
	// host can reach, what began before has ended; on others it is enqueued.
	Begin(index int, step *Step)
	// Waited is called when the wait for an asynchronous step is over.
	Waited(step *Step)
	// End is called when the run is over, with its error.
	End(err error)

	// Started and Finished surround an asynchronous step, on the goroutine of its lane.
	// Begin has told of it before, when it was put on the lane.
	Started(step *Step)
	Finished(step *Step)
}
