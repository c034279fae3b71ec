package recipes_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/tenure-dev/tenure/recipes"
)

// A resource that remembers tokens in a file. The holder of token 33 is paused; meanwhile
// token 34 takes over and seals; then 33 goes on as if nothing had happened.
func ExampleFenceGuard() {
	dir, err := os.MkdirTemp("", "fence")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	high, err := recipes.OpenFileHighWater(filepath.Join(dir, "tokens"))
	if err != nil {
		log.Fatal(err)
	}
	defer high.Close()
	guard := recipes.NewFenceGuard(high)
	ctx := context.Background()

	write := func(token recipes.Token, text string) {
		err := guard.Do(ctx, "/svc/leader", token, func(context.Context) error {
			fmt.Println(text)
			return nil
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	write(33, "33 writes")
	if err := guard.Admit(ctx, "/svc/leader", 34); err != nil { // seal
		log.Fatal(err)
	}
	write(33, "33 writes again")
	write(34, "34 writes")
	// Output:
	// 33 writes
	// /svc/leader: stale fencing token 33: 34 has been seen
	// 34 writes
}

// Seal before read, with the tokens in the database of the data. A new leader admits its
// token in a transaction of its own, then reads, then acts, each write admitted in its
// own transaction.
func ExampleSQLFence() {
	dir, err := os.MkdirTemp("", "fence")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	ctx := context.Background()
	fence := recipes.SQLFence{Dialect: recipes.SQLite}
	if err := fence.CreateTable(ctx, db); err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE account (balance INTEGER); INSERT INTO account VALUES (100)`); err != nil {
		log.Fatal(err)
	}

	seal := func(token recipes.Token) error { return fence.Admit(ctx, db, "/svc/leader", token) }
	read := func() (balance int, err error) {
		err = db.QueryRowContext(ctx, `SELECT balance FROM account`).Scan(&balance)
		return balance, err
	}
	write := func(token recipes.Token, balance int) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err := fence.Admit(ctx, tx, "/svc/leader", token); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		if _, err := tx.ExecContext(ctx, `UPDATE account SET balance = ?`, balance); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	}

	sealed33 := seal(33)
	old, err := read() // 33 is paused here, about to add 10
	if err := errors.Join(sealed33, err); err != nil {
		log.Fatal(err)
	}
	sealed34 := seal(34)
	balance, err := read() // nothing of 33 can change this any more
	if err := errors.Join(sealed34, err); err != nil {
		log.Fatal(err)
	}
	fmt.Println("33:", write(33, old+10))
	fmt.Println("34:", write(34, balance+1))
	balance, err = read()
	fmt.Println(balance, err)
	// Output:
	// 33: /svc/leader: stale fencing token 33: 34 has been seen
	// 34: <nil>
	// 101 <nil>
}
