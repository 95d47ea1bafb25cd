package spill

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// Transfers through a limit take turns and last as long as their bytes, by a clock that
// stands still otherwise; a disk that was left alone has saved nothing up. What is read is
// what was written.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &faulty{}
		disk.Allocate(16 << 10)
		l := Limit(disk, 4096)
		begin := time.Now()
		want := func(seconds int) {
			t.Helper()
			if took := time.Since(begin); took != time.Duration(seconds)*time.Second {
				t.Errorf("%v have passed, want %d s", took, seconds)
			}
		}
		page := bytes.Repeat([]byte{7}, 8<<10)
		l.WriteAt(page, 4096)
		want(2)
		time.Sleep(10 * time.Second)
		back := make([]byte, len(page))
		go func() {
			l.ReadAt(back, 4096)
			want(14)
		}()
		synctest.Wait()
		l.WriteAt(page[:4096], 0)
		want(15)
		if !bytes.Equal(back, page) {
			t.Error("other bytes came back")
		}
	})
}
