package recipes

// Upkeep is what recipes keep alive on one session. STUB: being written.
type Upkeep struct{}

// NewUpkeep returns the upkeep of s.
func NewUpkeep(s Session) *Upkeep { return &Upkeep{} }

// End says that the session is over, or about to be closed: all its tenures end at once,
// with why. The Session calls it before anything else may know.
func (u *Upkeep) End(why error) {}

// Wait waits for the goroutines of the upkeep, after End.
func (u *Upkeep) Wait() {}
