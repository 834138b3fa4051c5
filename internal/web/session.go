package web

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"sync"
	"time"
)

const (
	// sessionLife is how long a session lasts at most, in use or not.
	sessionLife = 12 * time.Hour
	// inviteLife is how long a link for signing in is good.
	inviteLife = time.Hour
	// maxSessions bounds how many sessions are open at a time. The oldest makes room.
	maxSessions = 1024
)

// Session is a browser that has signed in.
type Session struct {
	id string
	// Name is shown in the header; empty for none.
	Name string
	// Value is what the keeper of the session knows of it.
	Value any

	started time.Time
	find    func(ctx context.Context, id string) (*Session, error)
}

// NewSession returns a session that a Keeper has found.
func NewSession(id, name string, value any) *Session {
	return &Session{id: id, Name: name, Value: value}
}

// Keeper keeps sessions, and the tokens that open one.
type Keeper interface {
	// Enter uses a token up and returns the session that it opens; nil if it opens none.
	Enter(ctx context.Context, token string) (*Session, error)
	// Find returns the session with an ID; nil if it has ended.
	Find(ctx context.Context, id string) (*Session, error)
	// End ends the session with an ID.
	End(ctx context.Context, id string) error
}

// CSRF returns the token that each form of the session carries.
func (s *Session) CSRF() string {
	mac := hmac.New(sha256.New, []byte(s.id))
	mac.Write([]byte("csrf"))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// genuine reports whether a form's token is the session's.
func (s *Session) genuine(token string) bool {
	return subtle.ConstantTimeCompare([]byte(token), []byte(s.CSRF())) == 1
}

// ended reports whether a session is known to have ended since its request began.
func (s *Session) ended(ctx context.Context) bool {
	if s == nil || s.find == nil {
		return false
	}
	found, err := s.find(ctx, s.id)
	return err == nil && found == nil
}

// Sessions keeps sessions in the memory of the process: they end with it at the latest.
type Sessions struct {
	now func() time.Time

	mu      sync.Mutex
	invites map[[sha256.Size]byte]time.Time
	open    map[[sha256.Size]byte]*Session
}

// NewSessions returns no sessions.
func NewSessions(now func() time.Time) *Sessions {
	return &Sessions{now: now, invites: map[[sha256.Size]byte]time.Time{}, open: map[[sha256.Size]byte]*Session{}}
}

// Invite returns a token that opens one session, once.
func (s *Sessions) Invite() string {
	token := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.invites[sha256.Sum256([]byte(token))] = s.now()
	return token
}

// Enter implements Keeper.
func (s *Sessions) Enter(_ context.Context, token string) (*Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := sha256.Sum256([]byte(token)) // a lookup by digest tells nothing by its time
	made, known := s.invites[key]
	delete(s.invites, key)
	if !known || s.now().Sub(made) > inviteLife {
		return nil, nil //nolint:nilnil // as Keeper says
	}
	s.makeRoom()
	session := &Session{id: rand.Text(), started: s.now()}
	s.open[sha256.Sum256([]byte(session.id))] = session
	return session, nil
}

// makeRoom removes the sessions that have expired, and the oldest one if there are too many.
func (s *Sessions) makeRoom() {
	var oldest *Session
	for key, session := range s.open {
		if s.now().Sub(session.started) > sessionLife {
			delete(s.open, key)
			continue
		}
		if oldest == nil || session.started.Before(oldest.started) {
			oldest = session
		}
	}
	if len(s.open) >= maxSessions {
		delete(s.open, sha256.Sum256([]byte(oldest.id)))
	}
}

// Find implements Keeper.
func (s *Sessions) Find(_ context.Context, id string) (*Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	session := s.open[sha256.Sum256([]byte(id))]
	if session == nil || s.now().Sub(session.started) > sessionLife {
		return nil, nil //nolint:nilnil // as Keeper says
	}
	return session, nil
}

// End implements Keeper. A copy of the session's cookie is worth nothing from then on.
func (s *Sessions) End(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, sha256.Sum256([]byte(id)))
	return nil
}

type sessionKey struct{}

// SessionOf returns the session of a request that Guard has let through.
func SessionOf(ctx context.Context) *Session {
	session, _ := ctx.Value(sessionKey{}).(*Session)
	return session
}
