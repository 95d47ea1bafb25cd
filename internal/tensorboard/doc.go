// Package tensorboard writes event files that TensorBoard reads.
//
// An event file is a sequence of records in TensorFlow's framing (TFRecord): the
// length of the data as a little-endian uint64, its masked CRC-32C, the data, and
// their masked CRC-32C. The data are an Event of protocol buffers
// (tensorflow/core/util/event.proto). A record is written by one call, and readers
// expect that the last one may be torn: a killed process loses nothing else.
//
// A folder may hold several files: a run that resumes begins a new one, which tells
// readers to forget what older files say of the steps that come again.
package tensorboard
