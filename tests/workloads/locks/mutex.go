// Goroutines wait for a sync.Mutex: threads do not.
package main

import (
	"bufio"
	"fmt"
	"os"
	"sync"
	"time"
)

var cache sync.Mutex

func take(done chan bool) {
	cache.Lock()
	cache.Unlock()
	done <- true
}

func main() {
	stdin := bufio.NewReader(os.Stdin)
	fmt.Printf("ready %d\n", os.Getpid())
	stdin.ReadString('\n')
	done := make(chan bool)
	for round := 0; round < 7; round++ {
		cache.Lock()
		go take(done)
		time.Sleep(20 * time.Millisecond)
		cache.Unlock()
		<-done
	}
	fmt.Println("done")
	stdin.ReadString('\n')
}
