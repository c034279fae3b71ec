package zk_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/zk"
)

// A lock on an existing ZooKeeper ensemble. But for how the Store is made it is the same
// as on Tenure.
func ExampleConnect() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	servers, chroot, err := zk.ParseAddress("zk://zk1:2181,zk2:2181,zk3:2181/team")
	if err != nil {
		log.Fatal(err)
	}
	store, err := zk.Connect(ctx, zk.Options{
		Servers: servers,
		Chroot:  chroot,
		Timeout: 10 * time.Second, // servers grant 2 to 20 of their ticks
	})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	// By default whoever follows a holder that crashed holds off for 0.41 of the session
	// timeout, since ZooKeeper does not say when it expires a session. HoldOffNone does
	// without, for those who fence every effect.
	mutex, err := recipes.NewMutex(store, "/locks/migration", recipes.Options{
		Timing: recipes.Timing{HoldOff: recipes.HoldOffAuto()},
	})
	if err != nil {
		log.Print(err)
		return
	}
	tenure, err := mutex.Lock(ctx)
	if err != nil {
		log.Print(err)
		return
	}
	defer tenure.Release(context.WithoutCancel(ctx))
	fmt.Println("holds with token", tenure.Token())
}
