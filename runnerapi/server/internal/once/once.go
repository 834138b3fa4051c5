// Package once carries out a write once, however often it is sent, and keeps its answer.
package once

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
)

const (
	// maxKeptAnswer bounds an answer that is stored for repetition. A command with a larger answer
	// is carried out again, which PUT and DELETE allow.
	maxKeptAnswer = 64 << 10
	// AnswersApp is in an operation's Metadata: its answer is an App.
	AnswersApp = "answersApp"
)

var idempotencyKey = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)

type commandKey struct{}

// Command is a write in progress.
type Command struct {
	backend.Record
	Known bool // carried out before: only its answer is needed
	taken bool // an earlier call holds the key and may still be in progress
}

// Name identifies the command. A key may be used again for another command once its record is gone.
func (c *Command) Name() string { return c.ID + "@" + strconv.FormatInt(c.StartedAt.UnixNano(), 36) }

// From returns the write that ctx belongs to, or nil.
func From(ctx context.Context) *Command {
	c, _ := ctx.Value(commandKey{}).(*Command)
	return c
}

// Commands are the writes, which the journal keeps.
type Commands struct {
	Journal backend.Journal
	Log     zerolog.Logger
}

// Once makes every write an operation: it is recorded in the journal before it is carried out, and
// answered from there if it is sent again with its key.
func (s *Commands) Once(hc huma.Context, next func(huma.Context)) {
	if dry, err := strconv.ParseBool(hc.Query("dryRun")); s.Journal == nil || dry || err != nil && hc.Query("dryRun") != "" {
		next(hc)
		return
	}
	claim := claimOf(hc)
	if !idempotencyKey.MatchString(claim.Key) {
		next(hc) // next is about to refuse it
		return
	}
	r, w := humachi.Unwrap(hc)
	record, known, err := limitedClaim(hc.Context(), s.Journal, claim)
	if err != nil {
		problem.Write(w, problem.RequestID(r.Context()), request.Error(r.Context(), s.Log, err))
		return
	}
	c := &Command{Record: record, Known: known && record.Done, taken: known}
	if c.Known && hc.Operation().Metadata[AnswersApp] == nil && c.Status != 0 {
		c.repeat(hc)
		return
	}
	answer := &heldAnswer{humaContext: huma.WithValue(hc, commandKey{}, c)}
	next(answer)
	s.settleCommand(hc.Context(), c, answer)
	if answer.status < http.StatusBadRequest {
		hc.SetHeader(request.OperationIDHeader, c.ID)
		hc.SetHeader("Location", "/v1/operations/"+c.ID)
	}
	answer.release(hc)
}

// claimOf returns the claim for a call. A call without a caller's key gets its own claim.
func claimOf(hc huma.Context) backend.Claim {
	r, _ := humachi.Unwrap(hc)
	claim := backend.Claim{
		Caller: request.Caller(hc.Context()), Key: hc.Header("Idempotency-Key"), Command: hc.Operation().OperationID,
		Target: runnerapi.Key{Namespace: hc.Param("namespace"), Name: hc.Param("name")}, Method: r.Method, Path: r.URL.Path,
	}
	query := r.URL.Query()
	query.Del("wait") // how long the caller waits for the outcome
	query.Del("generation")
	if len(query) > 0 {
		claim.Path += "?" + query.Encode()
	}
	if hc.Operation().OperationID == runnerapi.ApplyCall {
		claim.Target = request.ApplyTarget(r)
	}
	if claim.Key == "" {
		claim.Key = uuid.NewString()
	}
	if body, ok := r.Body.(*decode.ReadAhead); ok {
		claim.Body = body.All
	}
	return claim
}

func limitedClaim(ctx context.Context, j backend.Journal, claim backend.Claim) (backend.Record, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, request.JournalLimit)
	defer cancel()
	return j.Claim(ctx, claim)
}

// Accepted records the App in a command's answer before the call waits for the App to settle.
func (s *Commands) Accepted(ctx context.Context, c *Command, app runnerapi.App) {
	c.Done, c.App = true, &backend.AppMark{UID: app.UID, Generation: app.Generation, Restart: app.RestartedAt}
	s.finish(ctx, c)
}

// AnsweredElsewhere reports whether another replica has answered the command while this one held
// it. If its record is gone, or belongs to another command, the command was held for too long to
// know: it must be sent again.
func (s *Commands) AnsweredElsewhere(ctx context.Context, c *Command) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, request.JournalLimit)
	defer cancel()
	now, err := s.Journal.Find(ctx, c.ID)
	gone := problem.Is(err, runnerapi.CodeNotFound)
	switch {
	case gone, err == nil && (&Command{Record: now}).Name() != c.Name():
		return false, problem.Errorf(problem.Unavailable, "send it again", "the command was held up until its record was gone")
	case err != nil:
		return false, err
	}
	c.Done = now.Done // the other replica has recorded its answer
	return c.Done, nil
}

// settleCommand records what a command was answered, or that it was refused. One that broke off may
// have been carried out: it keeps its key and is carried out again when it is resent. If there is
// then nothing left to delete, the first attempt did it.
func (s *Commands) settleCommand(ctx context.Context, c *Command, answer *heldAnswer) {
	switch {
	case c.Done:
	case c.taken && answer.status == http.StatusNotFound && answer.Operation().Method == http.MethodDelete:
		c.Done, c.Status = true, http.StatusNoContent
		s.finish(ctx, c)
		answer.gone()
	case answer.status < http.StatusBadRequest:
		c.Done, c.Status = true, answer.status
		if answer.body.Len() <= maxKeptAnswer {
			c.Answer = bytes.Clone(answer.body.Bytes())
		} else {
			c.Status = 0
		}
		s.finish(ctx, c)
	case !c.taken && answer.status < http.StatusInternalServerError && answer.status != http.StatusTooManyRequests:
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), request.JournalLimit)
		defer cancel()
		if err := s.Journal.Release(ctx, c.ID); err != nil {
			s.Log.Warn().Err(err).Str("operation", c.ID).Msg("runner API: failed to remove the record of a refused command; its Idempotency-Key stays in use")
		}
	}
}

func (s *Commands) finish(ctx context.Context, c *Command) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), request.JournalLimit)
	defer cancel()
	if err := s.Journal.Finish(ctx, c.Record); err != nil {
		s.Log.Warn().Err(err).Str("operation", c.ID).Msg("runner API: failed to record the response of a completed command")
	}
}

// repeat sends the answer that was given before.
func (c *Command) repeat(hc huma.Context) {
	hc.SetHeader(request.OperationIDHeader, c.ID)
	hc.SetHeader("Location", "/v1/operations/"+c.ID)
	if len(c.Answer) > 0 {
		hc.SetHeader("Content-Type", "application/json")
	}
	hc.SetStatus(c.Status)
	if len(c.Answer) > 0 {
		_, _ = hc.BodyWriter().Write(c.Answer) // the caller is gone if this fails
	}
}

// humaContext gives the embedded context a name that is not a method's.
type humaContext huma.Context

// heldAnswer holds an answer back until the journal has it.
type heldAnswer struct {
	humaContext
	status int
	body   bytes.Buffer
}

// Unwrap lets huma find the underlying request.
func (h *heldAnswer) Unwrap() huma.Context { return h.humaContext }

// SetStatus keeps the status.
func (h *heldAnswer) SetStatus(code int) { h.status = code }

// Status returns the one that was kept.
func (h *heldAnswer) Status() int { return h.status }

// BodyWriter keeps the body.
func (h *heldAnswer) BodyWriter() io.Writer { return &h.body }

// gone makes the answer what the command was answered, or would have been, the first time.
func (h *heldAnswer) gone() {
	h.status = http.StatusNoContent
	h.body.Reset()
	_, w := humachi.Unwrap(h.humaContext)
	w.Header().Del("Content-Type")
}

func (h *heldAnswer) release(to huma.Context) {
	if h.status == 0 {
		return // the answer did not go through huma
	}
	to.SetStatus(h.status)
	if h.body.Len() > 0 {
		_, _ = to.BodyWriter().Write(h.body.Bytes()) // the caller is gone if this fails
	}
}
