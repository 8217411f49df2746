package main

import (
	"context"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// origin is a time of Go's clock, and originNanos the same one on the clock that all processes share. Both are
// CLOCK_MONOTONIC, but Go tells only differences.
var origin, originNanos = time.Now(), sharedNanos()

// now is the time on the clock that all processes share, in nanoseconds.
func now() int64 {
	return originNanos + int64(time.Since(origin))
}

func sharedNanos() int64 {
	var time unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &time); err != nil {
		panic(err)
	}
	return time.Nano()
}

// window is from when until when something is measured.
type window struct {
	from, until int64
}

func parseWindow(from, until string) (window, error) {
	first, err := strconv.ParseInt(from, 10, 64)
	if err != nil {
		return window{}, err
	}
	last, err := strconv.ParseInt(until, 10, 64)
	return window{first, last}, err
}

// patience is for waits that are not over at the end of the window. Nobody else takes the lock any more then, so a
// wait for a message that was missed would last for ever.
func (window window) patience() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	timer := time.AfterFunc(time.Duration(window.until-now())+patience, cancel)
	return ctx, func() {
		timer.Stop()
		cancel()
	}
}

const patience = 2 * time.Second

func (window window) contains(at int64) bool {
	return window.from <= at && at < window.until
}
