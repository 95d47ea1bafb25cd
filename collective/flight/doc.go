// Package flight records what the groups of a rank do, so that a failure can be told
// from the end: which collective, for which node, which rank was missing. It also counts
// them.
//
// # Use
//
// A rank has one [Recorder]. What [Recorder.Group] returns takes the place of the group
// it was given, of any backend:
//
//	r := flight.New(flight.Options{Rank: 2, Ranks: 4, Folder: "outputs/run/flight_record"})
//	defer r.Close()
//	expert = r.Group(expert, []int{2, 3})
//	r.SetTimeout(time.Minute)
//
// A backend helps by being [collective.Annotated] (its own errors name nodes),
// [collective.Observed] (the record tells whether a collective waits for ranks or for
// data) and [collective.Timed] (deadlines can change, and its errors say who is missing).
// It need not count, record or know nodes itself.
//
// # When a collective fails
//
// On a deadline, a mismatch, an abort by another rank, or the end of the context the
// first call that fails writes the record to Folder/rank_R.json and returns an [Error],
// which names the ranks, the op, the node and the sequence number. The file is there
// before the call returns: a launcher that ends the process because of the error is
// too late. [Recorder.Write] does the same when a signal has come. The ranks of a job
// begin the same collectives of a group in the same order, so the culprit is the rank whose
// record has the lowest sequence number, or which has no record at all.
//
// A watchdog looks after what the backend's own deadline does not end: see
// [Options.Grace].
package flight
