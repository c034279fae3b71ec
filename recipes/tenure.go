package recipes

import (
	"context"
	"time"
)

// Tenure is what every holder gets. STUB: being written, the signatures stay.
type Tenure struct{}

func (t *Tenure) Token() Token                                           { return 0 }
func (t *Tenure) Name() string                                           { return "" }
func (t *Tenure) Holder() string                                         { return "" }
func (t *Tenure) Context() context.Context                               { return nil }
func (t *Tenure) Deadline() time.Time                                    { return time.Time{} }
func (t *Tenure) Check() error                                           { return nil }
func (t *Tenure) CheckFor(d time.Duration) error                         { return nil }
func (t *Tenure) Confirm(ctx context.Context) error                      { return nil }
func (t *Tenure) Guard() []Op                                            { return nil }
func (t *Tenure) Txn(ctx context.Context, ops ...Op) ([]OpResult, error) { return nil, nil }
func (t *Tenure) Done() <-chan struct{}                                  { return nil }
func (t *Tenure) Err() error                                             { return nil }
func (t *Tenure) Release(ctx context.Context) error                      { return nil }
