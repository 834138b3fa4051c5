package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
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
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
		mac.Write(body)
		list = append(list, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(list, " "), nil
}
