package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/boundedfile"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
)

// PublicToken reports whether the enrolment token has no secret, so that it may stay where it is.
func (c *Config) PublicToken() bool {
	token, err := controlapi.ParseToken(c.Token)
	return err == nil && token.Public()
}

// Prove adds the pod's service-account token, as its file has it now, to an enrolment token without
// a secret.
func (c *Config) Prove(token controlapi.Token) (controlapi.Token, error) {
	if !token.Public() {
		return token, nil
	}
	if c.ServiceAccountTokenFile == "" {
		return token, errors.New("PIPEOPS_SERVICE_ACCOUNT_TOKEN_FILE: is not set, and AGENT_TOKEN has no secret " +
			"(fix: mount a service-account token and name its file, with Helm: serviceAccountToken.enabled=true; or set a token with a secret)")
	}
	text, err := boundedfile.Read(c.ServiceAccountTokenFile, maxFile)
	if err != nil {
		return token, fmt.Errorf("PIPEOPS_SERVICE_ACCOUNT_TOKEN_FILE: %w", err)
	}
	proof := strings.TrimSpace(string(text))
	if strings.Count(proof, ".") != 2 || strings.Trim(proof, tokenLetters) != "" {
		return token, fmt.Errorf("PIPEOPS_SERVICE_ACCOUNT_TOKEN_FILE: %s has no service-account token (fix: name the file of a projected volume)", c.ServiceAccountTokenFile)
	}
	return token.With(proof), nil
}

// tokenLetters are the characters of a JSON Web Token.
const tokenLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
