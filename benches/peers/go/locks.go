package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// lock is a lock of some name, as one goroutine uses it.
type lock interface {
	// take waits until the context is cancelled.
	take(ctx context.Context) error
	giveBack() error
}

// lockers are a client of each library: a process has one, whatever the number of its goroutines.
type lockers struct {
	rueidis rueidislock.Locker
	redsync *redsync.Redsync
	goRedis *redis.Client
}

func connect(url string) (*lockers, error) {
	address := strings.TrimPrefix(url, "redis://")
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{address}},
		// Both are what its documentation says to use with one server of this version.
		KeyMajority:    1,
		NoLoopTracking: true,
		// With these, a wait whose request took longer than this was never woken: by default that is 20 ms, which a
		// busy machine exceeds.
		TryNextAfter: time.Second,
	})
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(&redis.Options{Addr: address})
	if err := client.Ping(context.Background()).Err(); err != nil {
		return nil, err
	}
	return &lockers{locker, redsync.New(redsyncpool.NewPool(client)), client}, nil
}

// locks makes a lock for a goroutine: the name goes on as it says.
func (lockers *lockers) locks(kind, name string) (func(suffix string) lock, error) {
	switch kind {
	case "rueidislock":
		return func(suffix string) lock {
			return &rueidisLock{locker: lockers.rueidis, name: name + suffix}
		}, nil
	case "redsync":
		return func(suffix string) lock {
			return &redsyncLock{lockers.redsync.NewMutex(name + suffix)}
		}, nil
	}
	return nil, fmt.Errorf("not a lock: %s", kind)
}

type rueidisLock struct {
	locker rueidislock.Locker
	name   string
	cancel context.CancelFunc
}

func (lock *rueidisLock) take(ctx context.Context) error {
	var err error
	_, lock.cancel, err = lock.locker.WithContext(ctx, lock.name)
	return err
}

func (lock *rueidisLock) giveBack() error {
	lock.cancel()
	return nil
}

type redsyncLock struct {
	mutex *redsync.Mutex
}

func (lock *redsyncLock) take(ctx context.Context) error {
	return lock.mutex.LockContext(ctx)
}

func (lock *redsyncLock) giveBack() error {
	released, err := lock.mutex.Unlock()
	if err == nil && !released {
		err = errors.New("it was not held any more")
	}
	return err
}

// emptyScript runs a script that does nothing, with the client that the library uses.
func (lockers *lockers) emptyScript(kind string) (func() error, error) {
	ctx := context.Background()
	switch kind {
	case "rueidislock":
		client := lockers.rueidis.Client()
		load := client.B().ScriptLoad().Script("return 1").Build()
		hash, err := client.Do(ctx, load).ToString()
		return func() error {
			call := client.B().Evalsha().Sha1(hash).Numkeys(0).Build()
			return client.Do(ctx, call).Error()
		}, err
	case "redsync":
		hash, err := lockers.goRedis.ScriptLoad(ctx, "return 1").Result()
		return func() error {
			return lockers.goRedis.EvalSha(ctx, hash, nil).Err()
		}, err
	}
	return nil, fmt.Errorf("not a lock: %s", kind)
}
