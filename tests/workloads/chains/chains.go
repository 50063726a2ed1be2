// Chains of Go: goroutines, closures, methods, deferred calls, a panic in flight.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"sort"
	"time"
)

var laps = 1000000
var sink int

// Computes and sleeps; the runtime's functions below it are not the chain's.
func stop() {
	x := sink
	for lap := 0; lap < laps; lap++ {
		x = x*5 + lap
	}
	sink = x
}

//go:noinline
func nested3() { stop() }

//go:noinline
func nested2() { nested3() }

//go:noinline
func nested1() { nested2() }

//go:noinline
func recurse(depth int) int {
	if depth == 1 {
		stop()
		return sink
	}
	return recurse(depth-1) + 1
}

//go:noinline
func largeLeaf(bytes *[200 << 10]byte) { stop(); bytes[sink&1] = 1 }

//go:noinline
func largeFrame() byte {
	var bytes [200 << 10]byte
	largeLeaf(&bytes)
	return bytes[0]
}

type shape interface{ area() int }
type square struct{ side int }

//go:noinline
func (s *square) area() int { stop(); return s.side * s.side }

//go:noinline
func measure(s shape) int { return s.area() + 1 }

//go:noinline
func deferred() { stop() }

//go:noinline
func defers() { defer deferred(); sink++ }

//go:noinline
func onPanic() { stop(); recover() }

//go:noinline
func panics() { panic("x") }

//go:noinline
func recovers() { defer onPanic(); panics() }

//go:noinline
func sorts() {
	values := []int{2, 1}
	first := true
	sort.Slice(values, func(i, j int) bool {
		if first {
			stop()
		}
		first = false
		return values[i] < values[j]
	})
}

//go:noinline
func sleeps() { time.Sleep(2 * time.Millisecond) }

//go:noinline
func worker(done chan int) { nested1(); sleeps(); done <- 1 }

// Has stop compute for 12 ms, or for longer on an emulated machine, where what leads there is translated first, by the fastest of
// some attempts: in the others the machine may have done something else.
func calibrate() {
	wanted := 12e6
	if runtime.GOARCH == "arm64" {
		wanted = 60e6
	}
	fastest := time.Hour
	for attempt := 0; attempt < 8; attempt++ {
		start := time.Now()
		stop()
		if spent := time.Since(start); spent < fastest {
			fastest = spent
		}
	}
	laps = int(wanted * float64(laps) / float64(fastest))
}

func main() {
	lines := bufio.NewReader(os.Stdin)
	calibrate()
	fmt.Printf("ready %d\n", os.Getpid())
	lines.ReadString('\n')
	nested1()
	recurse(1)
	recurse(100)
	largeFrame()
	measure(&square{2})
	defers()
	recovers()
	sorts()
	done := make(chan int)
	go func() { worker(done) }()
	<-done
	fmt.Println("done")
	lines.ReadString('\n')
}
