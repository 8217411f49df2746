package main

// What a worker does in each row: as the workers in Rust do, with a goroutine for each of their tasks. Times are in
// nanoseconds.

import (
	"context"
	"sort"
	"strconv"
	"time"
)

const (
	hold     = time.Millisecond
	queueing = 100 * time.Millisecond
)

func pairs(lock lock, window window) ([]string, error) {
	times := newTimes(window)
	for times.goOn() {
		if err := lock.take(context.Background()); err != nil {
			return nil, err
		}
		if err := lock.giveBack(); err != nil {
			return nil, err
		}
		times.note()
	}
	return times.figures(), nil
}

func floor(lockers *lockers, kind string, window window) ([]string, error) {
	call, err := lockers.emptyScript(kind)
	if err != nil {
		return nil, err
	}
	times := newTimes(window)
	for times.goOn() {
		for range 2 {
			if err := call(); err != nil {
				return nil, err
			}
		}
		times.note()
	}
	return times.figures(), nil
}

func rush(locks func(task int) lock, tasks int, window window) ([]string, error) {
	ctx, cancel := window.patience()
	defer cancel()
	return inParallel(tasks, func(task int) ([]int64, error) {
		lock, turns := locks(task), int64(0)
		for now() < window.until {
			if err := lock.take(ctx); err != nil {
				if ctx.Err() != nil {
					break
				}
				return nil, err
			}
			if window.contains(now()) {
				turns++
			}
			if err := lock.giveBack(); err != nil {
				return nil, err
			}
		}
		return []int64{turns}, nil
	})
}

func drain(newLock func() lock, waiters int, window window) ([]string, error) {
	first, taken := newLock(), 0
	var gaps []string
	for len(gaps) == 0 || now() < window.until {
		if err := first.take(context.Background()); err != nil {
			return nil, err
		}
		turns := make(chan [2]int64, waiters)
		failed := make(chan error, waiters)
		for range waiters {
			go func() {
				lock := newLock()
				if err := lock.take(context.Background()); err != nil {
					failed <- err
					return
				}
				heldAt := now()
				for now() < heldAt+int64(hold) {
				}
				leftAt := now()
				if err := lock.giveBack(); err != nil {
					failed <- err
					return
				}
				turns <- [2]int64{leftAt, leftAt - heldAt}
			}()
		}
		time.Sleep(queueing)
		releasedAt := now()
		if err := first.giveBack(); err != nil {
			return nil, err
		}
		endedAt, held := releasedAt, int64(0)
		for range waiters {
			select {
			case turn := <-turns:
				endedAt = max(endedAt, turn[0])
				held += turn[1]
			case err := <-failed:
				return nil, err
			}
		}
		taken += waiters + 1
		gaps = append(gaps, strconv.FormatInt((endedAt-releasedAt-held)/int64(waiters), 10))
	}
	return append([]string{strconv.Itoa(taken)}, gaps...), nil
}

func relay(lock lock, window window) ([]string, error) {
	return turns(lock, window, func() { time.Sleep(hold) })
}

func empty(lock lock, window window) ([]string, error) {
	return turns(lock, window, func() {})
}

// turns are the beginnings and the ends of the holds.
func turns(lock lock, window window, inside func()) ([]string, error) {
	ctx, cancel := window.patience()
	defer cancel()
	var holds []string
	for now() < window.until {
		if err := lock.take(ctx); err != nil {
			if ctx.Err() != nil {
				break
			}
			return nil, err
		}
		heldAt := now()
		inside()
		leftAt := now()
		if err := lock.giveBack(); err != nil {
			return nil, err
		}
		if window.contains(heldAt) {
			holds = append(holds, strconv.FormatInt(heldAt, 10), strconv.FormatInt(leftAt, 10))
		}
	}
	return holds, nil
}

func inParallel(tasks int, run func(task int) ([]int64, error)) ([]string, error) {
	type result struct {
		figures []int64
		err     error
	}
	results := make(chan result, tasks)
	for task := range tasks {
		go func() {
			figures, err := run(task)
			results <- result{figures, err}
		}()
	}
	var all []string
	for range tasks {
		result := <-results
		if result.err != nil {
			return nil, result.err
		}
		for _, figure := range result.figures {
			all = append(all, strconv.FormatInt(figure, 10))
		}
	}
	return all, nil
}

// times notes what takes how long in a window.
type times struct {
	window window
	lastAt int64
	nanos  []int64
}

func newTimes(window window) *times {
	return &times{window, now(), nil}
}

func (times *times) goOn() bool {
	return times.lastAt < times.window.until
}

// note says that something was done once since the last note.
func (times *times) note() {
	at := now()
	if times.window.contains(times.lastAt) {
		times.nanos = append(times.nanos, at-times.lastAt)
	}
	times.lastAt = at
}

// figures are how often it was done, and how long the middle one took.
func (times *times) figures() []string {
	sort.Slice(times.nanos, func(one, other int) bool { return times.nanos[one] < times.nanos[other] })
	p50 := "NaN"
	if len(times.nanos) > 0 {
		p50 = strconv.FormatInt(times.nanos[len(times.nanos)/2], 10)
	}
	return []string{strconv.Itoa(len(times.nanos)), p50}
}
