// Threads on one CPU fight for a channel's lock, which is one of the runtime's own: who is driven off the CPU with it has the
// others sleep.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
)

const threads = 4

func fight(cache chan int, start chan bool, said chan string) {
	runtime.LockOSThread()
	<-start
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
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
		go fight(cache, start, said)
	}
	close(start)
	for i := 0; i < threads; i++ {
		fmt.Println(<-said)
	}
	fmt.Println("done")
	stdin.ReadString('\n')
}
