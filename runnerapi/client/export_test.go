package client

import (
	"time"
)

// DialingOneAtATime has the client wait for a dial as long as it takes: on a machine with a lot
// to do that may be more than the second after which it tries another address too, and a
// test that counts connections would count the machine's load.
func DialingOneAtATime(c *Client) *Client { return DialingTheNextAfter(c, time.Hour) }

// DialingTheNextAfter has the client try another address when the first hangs for that long.
// No call is in progress.
func DialingTheNextAfter(c *Client, patience time.Duration) *Client {
	c.core.upgrades.endpoints.patience = patience
	return c
}

// BeginningAt has the client begin with that endpoint, by its place in the list.
func BeginningAt(c *Client, n int) *Client {
	c.core.upgrades.endpoints.first = n
	return c
}

// PatientHandshakes has the client wait an hour for the end of a handshake.
func PatientHandshakes(c *Client) *Client {
	c.core.upgrades.endpoints.handshake = time.Hour
	return c
}

// WithAnswersUpTo bounds an answer that is not a stream, in bytes.
func WithAnswersUpTo(c *Client, most int64) *Client {
	c.core.maxAnswer = most
	return c
}
