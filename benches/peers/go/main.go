// A worker for the locks in Go: it does what it is told on standard input, line by line.
//
// It says "ready", the time of its clock and its versions, and answers each order by a line: "ok" and numbers, or
// "error" and what happened. It ends when its input does, whatever it is doing.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

func main() {
	fmt.Println("ready", now(), versions())
	orders := make(chan []string)
	go func() {
		input := bufio.NewScanner(os.Stdin)
		for input.Scan() {
			orders <- strings.Split(input.Text(), " ")
		}
		// Nobody is there any more to wait for an answer.
		os.Exit(0)
	}()
	var lockers *lockers
	for order := range orders {
		figures, err := follow(&lockers, order)
		if err != nil {
			fmt.Println("error", strings.Join(strings.Fields(err.Error()), " "))
			continue
		}
		fmt.Println("ok", strings.Join(figures, " "))
	}
}

func follow(lockers **lockers, order []string) ([]string, error) {
	if order[0] == "connect" {
		var err error
		*lockers, err = connect(order[1])
		return nil, err
	}
	if len(order) != 6 || *lockers == nil {
		return nil, fmt.Errorf("not an order: %q", order)
	}
	row, kind, name := order[0], order[1], order[2]
	tasks, err := strconv.Atoi(order[3])
	if err != nil {
		return nil, err
	}
	window, err := parseWindow(order[4], order[5])
	if err != nil {
		return nil, err
	}
	if row == "floor" {
		return floor(*lockers, kind, window)
	}
	locks, err := (*lockers).locks(kind, name)
	if err != nil {
		return nil, err
	}
	switch row {
	case "pairs":
		return pairs(locks(""), window)
	case "crowd":
		return rush(func(int) lock { return locks("") }, tasks, window)
	case "own":
		return rush(func(task int) lock { return locks(":" + strconv.Itoa(task)) }, tasks, window)
	case "drain":
		return drain(func() lock { return locks("") }, tasks, window)
	case "relay":
		return relay(locks(""), window)
	case "empty":
		return empty(locks(""), window)
	}
	return nil, fmt.Errorf("not a row: %s", row)
}

// versions are those that the program was built with.
func versions() string {
	said := "Go " + strings.TrimPrefix(runtime.Version(), "go")
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return said
	}
	for _, module := range build.Deps {
		if strings.HasSuffix(module.Path, "/go-redis/v9") {
			said += ", go-redis " + strings.TrimPrefix(module.Version, "v")
		}
	}
	return said
}
