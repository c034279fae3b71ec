package recipes_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
)

// database is one that fences are tested on, with a table of effects:
// id, in the order of insertion; token; text.
type database struct {
	db      *sql.DB
	dialect recipes.SQLDialect
	// waits returns when a transaction that wants to admit another token at the key must
	// be waiting for one that is open.
	waits func(t *testing.T, f recipes.SQLFence, key string)
}

func openDB(t *testing.T, driver, dsn string) *sql.DB {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func openPostgres(t *testing.T) database {
	db := openDB(t, "pgx", recipestest.StartPostgres(t))
	db.SetMaxOpenConns(40)
	waits := func(t *testing.T, _ recipes.SQLFence, _ string) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for n := 0; n == 0; {
			const waiting = `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'`
			if err := db.QueryRowContext(ctx, waiting).Scan(&n); err != nil {
				t.Fatal(err)
			}
		}
	}
	return database{db, recipes.PostgreSQL, waits}
}

func openSQLite(t *testing.T) database {
	path := t.TempDir() + "/db"
	const pragmas = "?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout"
	hasty := openDB(t, "sqlite", path+pragmas+"(0)")
	waits := func(t *testing.T, f recipes.SQLFence, key string) {
		const busy = 5 // SQLITE_BUSY
		err := f.Admit(t.Context(), hasty, key, 1<<62)
		if busyError, ok := errors.AsType[*sqlite.Error](err); !ok || busyError.Code()&0xff != busy {
			t.Fatalf("a higher token beside an open transaction: %v", err)
		}
	}
	return database{openDB(t, "sqlite", path+pragmas+"(60000)"), recipes.SQLite, waits}
}

// fence returns a new fence and empties the table of effects.
func (d database) fence(t *testing.T, table string) recipes.SQLFence {
	id := map[recipes.SQLDialect]string{
		recipes.PostgreSQL: "BIGINT GENERATED ALWAYS AS IDENTITY", recipes.SQLite: "INTEGER PRIMARY KEY AUTOINCREMENT"}[d.dialect]
	f := recipes.SQLFence{Dialect: d.dialect, Table: table}
	d.exec(t, d.db, `DROP TABLE IF EXISTS effects`)
	d.exec(t, d.db, `CREATE TABLE effects (id `+id+`, token BIGINT, text TEXT)`)
	if err := f.CreateTable(t.Context(), d.db); err != nil {
		t.Fatal(err)
	}
	return f
}

func (database) exec(t *testing.T, tx recipes.SQLTx, query string, args ...any) {
	t.Helper()
	if _, err := tx.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatal(err)
	}
}

// begin begins a transaction and admits the token in it; on an error it is rolled back.
func (d database) begin(t *testing.T, f recipes.SQLFence, token recipes.Token) (*sql.Tx, error) {
	tx, err := d.db.BeginTx(t.Context(), nil)
	if err != nil {
		return nil, err
	}
	if err := f.Admit(t.Context(), tx, "/a", token); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return tx, nil
}

// write performs one effect under the token.
func (d database) write(t *testing.T, f recipes.SQLFence, token recipes.Token, text string) error {
	tx, err := d.begin(t, f, token)
	if err != nil {
		return err
	}
	d.exec(t, tx, fmt.Sprintf(`INSERT INTO effects (token, text) VALUES (%d, '%s')`, token, text))
	return tx.Commit()
}

// texts returns the effects in their order.
func (d database) texts(t *testing.T) string {
	var text sql.NullString
	each := map[recipes.SQLDialect]string{recipes.PostgreSQL: "string_agg(text, ',' ORDER BY id)", recipes.SQLite: "group_concat(text, ',' ORDER BY id)"}[d.dialect]
	if err := d.db.QueryRowContext(t.Context(), `SELECT `+each+` FROM effects`).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text.String
}

// Goal: fences in a database hold on PostgreSQL and on SQLite. Method: the same tests on
// a real server and on a file.
func TestFenceSQL(t *testing.T) {
	for name, open := range map[string]func(*testing.T) database{"PostgreSQL": openPostgres, "SQLite": openSQLite} {
		t.Run(name, func(t *testing.T) {
			d := open(t)
			t.Run("Table", func(t *testing.T) { testSQLTable(t, d) })
			t.Run("Admits", func(t *testing.T) { testSQLAdmits(t, d) })
			t.Run("HighWater", func(t *testing.T) { testSQLHighWater(t, d) })
			t.Run("P51", func(t *testing.T) { testSQLPausedBeforeCommit(t, d) })
			t.Run("P97d", func(t *testing.T) { testSQLTokensNeverGoDown(t, d) })
			t.Run("P97e", func(t *testing.T) { testSQLSealBeforeRead(t, d) })
			if d.dialect == recipes.PostgreSQL {
				t.Run("SideBySide", func(t *testing.T) { testPostgresEqualTokens(t, d) })
				t.Run("Isolation", func(t *testing.T) { testPostgresIsolation(t, d) })
			}
		})
	}
}

// Goal: the table can be made by several at once and again; names that are no names are
// refused before they reach the database. Method: eight at once; a table of names.
func testSQLTable(t *testing.T, d database) {
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := (recipes.SQLFence{Dialect: d.dialect}).CreateTable(t.Context(), d.db); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := (recipes.SQLFence{Dialect: d.dialect}).Admit(t.Context(), d.db, "/a", 1); err != nil {
		t.Errorf("the table's default name: %v", err)
	}
	for _, table := range []string{"Fence", "a b", `a"b`, "1a", "a;b", "a.b.c", ".a", "a.", strings.Repeat("a", 64), "ü"} {
		f := recipes.SQLFence{Dialect: d.dialect, Table: table}
		_, err := recipes.NewSQLHighWater(d.db, f)
		if err2 := f.CreateTable(t.Context(), d.db); !errors.Is(err, recipes.ErrInvalid) || !errors.Is(err2, recipes.ErrInvalid) {
			t.Errorf("table %q: %v, %v", table, err, err2)
		}
	}
	if err := (recipes.SQLFence{}).Admit(t.Context(), d.db, "/a", 1); !errors.Is(err, recipes.ErrInvalid) {
		t.Errorf("no dialect: %v", err)
	}
	schema := map[recipes.SQLDialect]string{recipes.PostgreSQL: "public", recipes.SQLite: "main"}[d.dialect]
	f := d.fence(t, schema+".order") // a word of SQL's
	if err := d.write(t, f, 1, "x"); err != nil {
		t.Error(err)
	}
	if err := (recipes.SQLFence{Dialect: d.dialect, Table: "missing"}).Admit(t.Context(), d.db, "/a", 1); err == nil || errors.Is(err, recipes.ErrStaleToken) {
		t.Errorf("a table that is not there: %v", err)
	}
}

// Goal: a fence judges alike on a transaction, a connection and the database, refuses
// what BIGINT does not hold, and forgets with a rollback. Method: a table.
func testSQLAdmits(t *testing.T, d database) {
	f := d.fence(t, "admits")
	conn, err := d.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const most = 1<<63 - 1
	for _, c := range []struct {
		on    recipes.SQLTx
		token recipes.Token
		want  error
	}{
		{d.db, 5, nil}, {conn, 5, nil}, {conn, 4, recipes.ErrStaleToken}, {conn, 6, nil}, {d.db, 5, recipes.ErrStaleToken},
		{d.db, 0, recipes.ErrInvalid}, {d.db, most + 1, recipes.ErrInvalid}, {d.db, most, nil}, {conn, most, nil}, {conn, most - 1, recipes.ErrStaleToken},
	} {
		if err := f.Admit(t.Context(), c.on, "/table", c.token); !errors.Is(err, c.want) {
			t.Errorf("token %d on %T: %v, want %v", c.token, c.on, err, c.want)
		}
	}
	tx, err := d.begin(t, f, 7)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := d.write(t, f, 3, "x"); err != nil {
		t.Errorf("after a rollback: %v", err)
	}
	if _, err := d.begin(t, f, 2); !errors.Is(err, recipes.ErrStaleToken) || !strings.Contains(err.Error(), "/a: stale fencing token 2: 3 has been seen") {
		t.Errorf("the refusal says %v", err)
	}
}

// Goal: SQLHighWater never goes down under concurrent raises, first ones included, and
// what it returned stays. Method: goroutines raise random tokens; each result must be at
// least the token and at least that goroutine's last result; a second one sees the end.
func testSQLHighWater(t *testing.T, d database) {
	f := d.fence(t, "high_water")
	h, err := recipes.NewSQLHighWater(d.db, f)
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var all sync.WaitGroup
	var tops [6]recipes.Token
	for worker := range tops {
		random := rand.New(rand.NewPCG(seed, uint64(worker)))
		all.Go(func() {
			for i := range 30 {
				token := recipes.Token(1 + i/3 + random.IntN(5))
				top, err := h.Raise(t.Context(), "/a", token)
				if err != nil || top < token || top < tops[worker] {
					t.Errorf("Raise(%d) = %d, %v after %d", token, top, err, tops[worker])
				}
				tops[worker] = max(tops[worker], top)
			}
		})
	}
	all.Wait()
	again, err := recipes.NewSQLHighWater(d.db, f)
	if err != nil {
		t.Fatal(err)
	}
	var most recipes.Token
	for _, top := range tops {
		most = max(most, top)
	}
	raise(t, again, "/a", 1, most)
	if _, err := again.Raise(t.Context(), "/a", 1<<63); !errors.Is(err, recipes.ErrInvalid) {
		t.Errorf("a token above BIGINT: %v", err)
	}
}

// Goal: P51: what an old holder paused between its admission and its commit wrote cannot
// land behind a newer token. Method: pause it there; the new holder must wait for the
// commit; then the old one is refused. The order of effects is that of the tokens.
func testSQLPausedBeforeCommit(t *testing.T, d database) {
	f := d.fence(t, "paused")
	if err := d.write(t, f, 1, "first"); err != nil { // so that the row is there
		t.Fatal(err)
	}
	for _, old := range []recipes.Token{1, 3} { // one that is seen already, and a new one
		tx, err := d.begin(t, f, old)
		if err != nil {
			t.Fatal(err)
		}
		newer := make(chan error, 1)
		go func() { newer <- d.write(t, f, old+1, "new") }()
		d.waits(t, f, "/a")
		select {
		case err := <-newer:
			t.Fatalf("token %d did not wait for %d: %v", old+1, old, err)
		default:
		}
		d.exec(t, tx, `INSERT INTO effects (text) VALUES ('old')`)
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-newer; err != nil {
			t.Fatal(err)
		}
		if err := d.write(t, f, old, "late"); !errors.Is(err, recipes.ErrStaleToken) {
			t.Errorf("the old holder behind the new: %v", err)
		}
	}
	if got := d.texts(t); got != "first,old,new,old,new" {
		t.Errorf("effects %s", got)
	}
}

// Goal: P97d: in the order of effects tokens never go down. Method: many goroutines
// write with random tokens around a growing one, the first raises race too. Nothing but
// stale may be the answer: no deadlock either.
func testSQLTokensNeverGoDown(t *testing.T, d database) {
	f := d.fence(t, "never_down")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var all sync.WaitGroup
	for worker := range 8 {
		random := rand.New(rand.NewPCG(seed, uint64(worker)))
		all.Go(func() {
			for i := range 40 {
				err := d.write(t, f, recipes.Token(1+i/2+random.IntN(4)), "x")
				if err != nil && !errors.Is(err, recipes.ErrStaleToken) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	rows, err := d.db.QueryContext(t.Context(), `SELECT token FROM effects ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var tokens []int64
	for rows.Next() {
		var token int64
		if err := rows.Scan(&token); err != nil {
			t.Fatal(err)
		}
		if len(tokens) > 0 && token < tokens[len(tokens)-1] {
			t.Errorf("effect of token %d behind %d", token, tokens[len(tokens)-1])
		}
		tokens = append(tokens, token)
	}
	if err := rows.Err(); err != nil || len(tokens) < 20 || len(tokens) == 320 {
		t.Errorf("%d of 320 writes were admitted (%v): nothing was tested", len(tokens), err)
	}
}

// Goal: P97e: seal before read. Method: the new leader reads the state, the old leader
// writes, the new leader writes what it made of what it read. With the seal the old
// leader is refused; without, its update is lost.
func testSQLSealBeforeRead(t *testing.T, d database) {
	for _, seal := range []bool{true, false} {
		f := d.fence(t, fmt.Sprintf("seal_%v", seal))
		if err := d.write(t, f, 1, "a"); err != nil {
			t.Fatal(err)
		}
		if seal {
			if err := f.Admit(t.Context(), d.db, "/a", 2); err != nil {
				t.Fatal(err)
			}
		}
		read := d.texts(t)
		old := d.write(t, f, 1, "of old")
		if err := d.write(t, f, 2, "read "+read); err != nil {
			t.Fatal(err)
		}
		want := map[bool]string{true: "a,read a", false: "a,of old,read a"}[seal]
		if got := d.texts(t); got != want || errors.Is(old, recipes.ErrStaleToken) != seal {
			t.Errorf("seal %v: %q, want %q; the old leader's write: %v", seal, got, want, old)
		}
	}
}

// Goal: transactions of one token run side by side. Method: two are open at once; a
// higher one waits for both.
func testPostgresEqualTokens(t *testing.T, d database) {
	f := d.fence(t, "side_by_side")
	if err := d.write(t, f, 1, "first"); err != nil {
		t.Fatal(err)
	}
	var open [2]*sql.Tx
	for i := range open {
		var err error
		if open[i], err = d.begin(t, f, 1); err != nil {
			t.Fatal(err)
		}
	}
	newer := make(chan error, 1)
	go func() { newer <- d.write(t, f, 2, "new") }()
	for i, tx := range open {
		d.waits(t, f, "/a")
		d.exec(t, tx, fmt.Sprintf(`INSERT INTO effects (text) VALUES ('old %d')`, i))
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-newer; err != nil {
		t.Fatal(err)
	}
	if got := d.texts(t); got != "first,old 0,old 1,new" {
		t.Errorf("effects %s", got)
	}
}

// Goal: at stricter levels than READ COMMITTED a token is not raised, for the snapshot
// would be from before the seal; one that was sealed is admitted; one that was beaten
// behind the snapshot fails. Method: each at both levels.
func testPostgresIsolation(t *testing.T, d database) {
	for i, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
		f := d.fence(t, fmt.Sprintf("isolation_%d", i))
		admit := func(token recipes.Token, between func()) error {
			tx, err := d.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
			if err != nil {
				t.Fatal(err)
			}
			d.exec(t, tx, `SELECT 1 FROM effects`) // takes the snapshot
			between()
			err = f.Admit(context.Background(), tx, "/a", token)
			return errors.Join(err, tx.Rollback())
		}
		seal := func(token recipes.Token) func() {
			return func() {
				if err := f.Admit(t.Context(), d.db, "/a", token); err != nil {
					t.Error(err)
				}
			}
		}
		if err := admit(5, func() {}); !errors.Is(err, recipes.ErrInvalid) {
			t.Errorf("%v: first token: %v", level, err)
		}
		seal(5)()
		if err := admit(6, func() {}); !errors.Is(err, recipes.ErrInvalid) {
			t.Errorf("%v: higher token: %v", level, err)
		}
		if err := admit(5, func() {}); err != nil {
			t.Errorf("%v: sealed token: %v", level, err)
		}
		if err := admit(4, func() {}); !errors.Is(err, recipes.ErrStaleToken) {
			t.Errorf("%v: stale token: %v", level, err)
		}
		for _, token := range []recipes.Token{5, 6} {
			if err := admit(token, seal(token+1)); err == nil || !strings.Contains(err.Error(), "40001") {
				t.Errorf("%v: token %d beaten behind the snapshot: %v", level, token, err)
			}
		}
	}
}
