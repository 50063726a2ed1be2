// Threads on one CPU fight for a channel's lock, which is one of the runtime's own: who is driven off the CPU with it has the
// others sleep.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

const threads = 4

// Times that each has slept, of which many are for the lock.
var slept [threads]atomic.Int64

const enough = 40

func haveSlept() bool {
	for i := range slept {
		if slept[i].Load() < enough {
			return false
		}
	}
	return true
}

func fight(which int, cache chan int, start chan bool, said chan string) {
	runtime.LockOSThread()
	<-start
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end) || !haveSlept(); {
		var usage syscall.Rusage
		syscall.Getrusage(1, &usage) // This thread's.
		slept[which].Store(usage.Nvcsw)
		for i := 0; i < 1000; i++ {
			select {
			case cache <- i:
			default:
			}
			select {
			case <-cache:
			default:
			}
		}
	}
	said <- fmt.Sprintf("{\"name\": \"channel\", \"class\": \"go\", \"rounds\": 0, \"waiter\": %d, \"holder\": 0}", syscall.Gettid())
}

func main() {
	runtime.GOMAXPROCS(threads)
	stdin := bufio.NewReader(os.Stdin)
	fmt.Printf("ready %d\n", os.Getpid())
	stdin.ReadString('\n')
	cache, start, said := make(chan int, 1000), make(chan bool), make(chan string)
	for i := 0; i < threads; i++ {
		go fight(i, cache, start, said)
	}
	close(start)
	for i := 0; i < threads; i++ {
		fmt.Println(<-said)
	}
	fmt.Println("done")
	stdin.ReadString('\n')
}
