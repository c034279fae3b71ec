package native

import (
	"errors"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// outcomes are the client's classes of errors and what recipes call them.
var outcomes = []struct{ is, class error }{
	{client.ErrUnknown, recipes.ErrUncertain},
	{client.ErrUnavailable, recipes.ErrUnavailable},
	{client.ErrTooLarge, recipes.ErrInvalid},
}

// classified is an error with what recipes call it.
type classified struct {
	error
	classes []error
}

func (e *classified) Unwrap() []error {
	return append(e.classes[:len(e.classes):len(e.classes)], e.error)
}

// classify returns err so that errors.Is finds the class that recipes know. What is over
// for good is never called unavailable, which means that it may work later.
func classify(err error) error {
	if err == nil {
		return nil
	}
	e := &classified{error: err}
	over := sessionClass(err)
	bad := pathError(err)
	for _, o := range outcomes {
		if errors.Is(err, o.is) && (o.class != recipes.ErrUnavailable || over == nil && !bad) {
			e.classes = append(e.classes, o.class)
		}
	}
	if over != nil {
		e.classes = append(e.classes, over)
	}
	if bad {
		e.classes = append(e.classes, recipes.ErrInvalid)
	}
	if e.classes == nil {
		return err
	}
	return e
}

func pathError(err error) bool {
	_, ok := errors.AsType[*znode.PathError](err)
	return ok
}

// sessionClass returns ErrSessionExpired or ErrSessionClosed if err says so, else nil.
func sessionClass(err error) error {
	switch {
	case errors.Is(err, znode.SessionExpired):
		return recipes.ErrSessionExpired
	case errors.Is(err, client.ErrClosed):
		return recipes.ErrSessionClosed
	}
	return nil
}

// sessionError is why a session is over.
func sessionError(err error) error {
	return &classified{error: err, classes: []error{sessionClass(err)}}
}

// fail returns the error of a call. If that says that the session is over, the caller is
// told only when the session's tenures have ended.
func (s *Store) fail(err error) error {
	if err != nil && sessionClass(err) != nil {
		if cur := s.current.Load(); cur.c.State() == client.Over {
			<-cur.done
		}
	}
	return classify(err)
}
