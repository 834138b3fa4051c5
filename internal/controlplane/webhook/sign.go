package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of Standard Webhooks.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

const (
	// secretPrefix distinguishes secrets from other base64 text.
	secretPrefix = "whsec_"
	// secretSize is between the 24 and 64 bytes that the specification allows.
	secretSize = 32
)

// NewSecret returns a key to sign with.
func NewSecret() string {
	key := make([]byte, secretSize)
	_, _ = rand.Read(key) // it never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(key)
}

// keyOf returns the key that a secret stands for. Its error does not quote it.
func keyOf(secret string) ([]byte, error) {
	text, ok := strings.CutPrefix(secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) == 0 {
		return nil, errors.New("the secret is not " + secretPrefix + " and base64")
	}
	return key, nil
}

// sign makes the signatures of a message, one by each secret.
func sign(secrets []string, id string, at time.Time, body []byte) (string, error) {
	var list []string
	for _, secret := range secrets {
		key, err := keyOf(secret)
		if err != nil {
			return "", err
		}
		list = append(list, signaturePrefix+base64.StdEncoding.EncodeToString(sumOf(key, id, strconv.FormatInt(at.Unix(), 10), body)))
	}
	return strings.Join(list, " "), nil
}

// signaturePrefix is the version of a signature.
const signaturePrefix = "v1,"

func sumOf(key []byte, id, timestamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return mac.Sum(nil)
}

// signatureAge is how far a signature's time may be from now, as Standard Webhooks' libraries have
// it.
const signatureAge = 5 * time.Minute

// Signed reports whether a request has a signature of Standard Webhooks.
func Signed(h http.Header) bool { return h.Get(headerSignature) != "" }

// Verify reports whether one of a request's signatures is by the secret, and of about now.
func Verify(secret string, h http.Header, body []byte, now time.Time) bool {
	timestamp := h.Get(headerTimestamp)
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > signatureAge {
		return false
	}
	key, err := keyOf(secret)
	if err != nil {
		return false
	}
	sum := sumOf(key, h.Get(headerID), timestamp, body)
	for text := range strings.FieldsSeq(h.Get(headerSignature)) {
		text, ok := strings.CutPrefix(text, signaturePrefix)
		given, err := base64.StdEncoding.DecodeString(text)
		if ok && err == nil && hmac.Equal(given, sum) {
			return true
		}
	}
	return false
}
