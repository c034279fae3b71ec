package recipes

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"regexp"
)

// SQLDialect is a database that an SQLFence knows how to raise a mark on.
type SQLDialect uint8

// The dialects. PostgreSQL is 9.5 and later, SQLite 3.35 and later.
const (
	PostgreSQL SQLDialect = iota + 1
	SQLite
)

// String returns the name of the database.
func (d SQLDialect) String() string {
	return [...]string{"no dialect", "PostgreSQL", "SQLite", "unknown dialect"}[min(d, SQLite+1)]
}

// SQLTx is what an SQLFence needs to reach the database: *sql.Tx, and *sql.Conn and
// *sql.DB, on which each call is a transaction of its own.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// SQLFence keeps fencing tokens in a table next to the data that they guard, so that a
// token is judged in the very transaction of the effect:
//
//	tx, err := db.BeginTx(ctx, nil)
//	...
//	if err := fence.Admit(ctx, tx, "/svc/leader", tenure.Token()); err != nil {
//		return err // and roll back
//	}
//	// the effect: any statements in tx
//	return tx.Commit()
//
// The row of the key stays locked until that transaction ends. On PostgreSQL it is shared
// among transactions of the same token, and a transaction with a higher one waits for
// all of them; on SQLite a transaction that writes is alone anyhow. So no effect of a
// lower token is ever committed behind the admission of a higher one. Admit comes first
// in its transaction: what was read before it was not yet guarded. A transaction that
// takes several keys takes them in sorted order, or may be chosen to end a deadlock.
//
// A new holder seals first: it admits its token in a transaction of its own, commits, and
// only then reads (see FenceGuard).
//
// On PostgreSQL use READ COMMITTED, its default. A stricter level serves for the effects
// of a token that was sealed, failing with SQLSTATE 40001 where the token was raised
// meanwhile, but a token cannot be raised there: the snapshot is from before the wait
// for former holders, and what is read from it is older than what they left behind.
// Raise refuses that. On SQLite give the connection a busy timeout.
//
// Durability is the database's: with synchronous_commit off (PostgreSQL) or, in WAL mode,
// synchronous below FULL (SQLite) a crash forgets the latest tokens, together with the
// effects that were committed with them and after them.
//
// A plain value; it may be used concurrently.
type SQLFence struct {
	Dialect SQLDialect
	// Table is its name, with or without a schema: lower-case letters, digits and
	// underscores. Default tenure_fence.
	Table string
}

var sqlTableName = regexp.MustCompile(`^(?:([a-z_][a-z0-9_]{0,62})\.)?([a-z_][a-z0-9_]{0,62})$`)

// table returns the table's name as SQL has it.
func (f SQLFence) table() (string, error) {
	if f.Dialect != PostgreSQL && f.Dialect != SQLite {
		return "", fmt.Errorf("%w: SQLFence.Dialect is %d: it must be PostgreSQL or SQLite", ErrInvalid, f.Dialect)
	}
	if f.Table == "" {
		return `"tenure_fence"`, nil
	}
	parts := sqlTableName.FindStringSubmatch(f.Table)
	if parts == nil {
		return "", fmt.Errorf("%w: SQLFence.Table is %q: it must be [schema.]table of lower-case letters, digits and underscores, 63 at most each, and start with no digit", ErrInvalid, f.Table)
	}
	if parts[1] != "" {
		return `"` + parts[1] + `"."` + parts[2] + `"`, nil
	}
	return `"` + parts[2] + `"`, nil
}

// CreateTable makes the table if it is missing. Two may do so at once.
func (f SQLFence) CreateTable(ctx context.Context, db SQLTx) error {
	table, err := f.table()
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS `+table+
		` (name TEXT NOT NULL PRIMARY KEY, token BIGINT NOT NULL CHECK (token > 0))`)
	if err == nil {
		return nil
	}
	// PostgreSQL lets the slower of two fail although the table exists then.
	var n int
	if db.QueryRowContext(ctx, `SELECT count(*) FROM `+table+` WHERE token < 0`).Scan(&n) == nil {
		return nil
	}
	return fmt.Errorf("create table %s: %w", table, err)
}

// Admit raises the mark of key to t within tx, or returns a *StaleTokenError if a higher
// one has been seen: roll back then, as after any other error.
func (f SQLFence) Admit(ctx context.Context, tx SQLTx, key string, t Token) error {
	highest, err := f.Raise(ctx, tx, key, t)
	if err != nil {
		return err
	}
	return staleUnless(key, t, highest)
}

// Raise sets the mark of key to the higher of itself and t within tx and returns it. If
// the result is t the row stays locked until tx ends. A token above 2^63-1, which BIGINT
// does not hold, is ErrInvalid.
func (f SQLFence) Raise(ctx context.Context, tx SQLTx, key string, t Token) (Token, error) {
	table, err := f.check(key, t)
	if err != nil {
		return 0, err
	}
	if f.Dialect == PostgreSQL {
		// Lock the row for sharing if it needs no raise. It must not be locked otherwise, for
		// of two that share a lock neither can raise; and since tokens only grow, a row that
		// was found here is still one when it has been waited for.
		var highest int64
		err := tx.QueryRowContext(ctx, `SELECT token FROM `+table+` WHERE name = $1 AND token >= $2 FOR SHARE`, key, int64(t)).Scan(&highest)
		if err == nil {
			return Token(highest), nil
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return 0, fmt.Errorf("%s: look for fencing token %d: %w", key, t, err)
		}
	}
	values, level := `(?, ?)`, `''`
	if f.Dialect == PostgreSQL {
		values, level = `($1, $2)`, `current_setting('transaction_isolation')`
	}
	var highest int64
	err = tx.QueryRowContext(ctx, `INSERT INTO `+table+` AS mark (name, token) VALUES `+values+
		` ON CONFLICT (name) DO UPDATE SET token =`+
		` CASE WHEN mark.token < excluded.token THEN excluded.token ELSE mark.token END`+
		` RETURNING token, `+level, key, int64(t)).Scan(&highest, &level)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s: raise to fencing token %d: %w", key, t, err)
	case highest <= int64(t) && (level == "repeatable read" || level == "serializable"):
		return 0, fmt.Errorf("%w: %s: fencing token %d cannot be raised at %s, whose snapshot may be older than what former holders wrote: raise it at read committed first", ErrInvalid, key, t, level)
	}
	return Token(highest), nil
}

// check validates all that is sent and returns the table.
func (f SQLFence) check(key string, t Token) (string, error) {
	if err := validateFence(key, t); err != nil {
		return "", err
	}
	if t > math.MaxInt64 {
		return "", fmt.Errorf("%w: %s: fencing token %d is above 2^63-1, the most that BIGINT holds", ErrInvalid, key, t)
	}
	return f.table()
}

// SQLHighWater is a HighWater in a database, for a resource that is not in it: each Raise
// is a transaction of its own, and none writes when the mark is t or higher already.
// Where the effect is in the same database use SQLFence in its transaction instead. It
// may be used concurrently.
type SQLHighWater struct {
	db    *sql.DB
	fence SQLFence
}

// NewSQLHighWater returns the HighWater of the given table, which must exist
// (SQLFence.CreateTable).
func NewSQLHighWater(db *sql.DB, f SQLFence) (*SQLHighWater, error) {
	if _, err := f.table(); err != nil {
		return nil, err
	}
	return &SQLHighWater{db: db, fence: f}, nil
}

// Raise implements HighWater.
func (h *SQLHighWater) Raise(ctx context.Context, key string, t Token) (Token, error) {
	table, err := h.fence.check(key, t)
	if err != nil {
		return 0, err
	}
	place := `?`
	if h.fence.Dialect == PostgreSQL {
		place = `$1`
	}
	var highest int64
	err = h.db.QueryRowContext(ctx, `SELECT token FROM `+table+` WHERE name = `+place, key).Scan(&highest)
	switch {
	case err == nil && highest >= int64(t):
		return Token(highest), nil
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		return 0, fmt.Errorf("%s: read the highest fencing token: %w", key, err)
	}
	return h.raise(ctx, key, t)
}

func (h *SQLHighWater) raise(ctx context.Context, key string, t Token) (_ Token, err error) {
	level := sql.LevelDefault
	if h.fence.Dialect == PostgreSQL {
		level = sql.LevelReadCommitted
	}
	tx, err := h.db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		return 0, fmt.Errorf("%s: raise to fencing token %d: %w", key, t, err)
	}
	defer func() {
		if err != nil {
			_ = tx.Rollback() // the first error counts
		}
	}()
	highest, err := h.fence.Raise(ctx, tx, key, t)
	if err != nil {
		return 0, err
	}
	if err := tx.Commit(); err != nil {
		return 0, fmt.Errorf("%s: commit fencing token %d: %w", key, t, err)
	}
	return highest, nil
}
