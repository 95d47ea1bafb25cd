package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/device"
)

// writers are the processes that write one state together: each writes a file of its own
// parts, and the first, when all are done, the index. nil is a process that has everything.
type writers struct {
	group  collective.Group
	device device.Device // for what they tell each other
}

// rank among the writers; the first one leads.
func (w *writers) rank() int {
	if w == nil {
		return 0
	}
	return w.group.Rank()
}

// lead has the first process do something. All return when it is done, and with its error.
func (w *writers) lead(do func() error) error {
	if w == nil {
		return do()
	}
	var err error
	if w.rank() == 0 {
		err = do()
	}
	_, shared := w.share(nil, err)
	if err != nil {
		return err
	}
	return shared
}

// share returns what all processes bring, or the error of the first that has one.
func (w *writers) share(own []byte, failure error) ([][]byte, error) {
	if w == nil {
		return [][]byte{own}, failure
	}
	message := struct {
		Error string
		Own   []byte
	}{Own: own}
	if failure != nil {
		message.Error = failure.Error()
	}
	text, err := json.Marshal(message)
	if err != nil {
		return nil, err
	}
	all, err := exchange(context.Background(), w.device, w.group, text)
	if err != nil {
		return nil, errors.Join(failure, err)
	}
	for r, text := range all {
		message.Error, message.Own = "", nil
		if err := json.Unmarshal(text, &message); err != nil {
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
		if message.Error != "" {
			if r == w.rank() {
				return nil, failure
			}
			return nil, fmt.Errorf("rank %d: %s", r, message.Error)
		}
		all[r] = message.Own
	}
	return all, nil
}
