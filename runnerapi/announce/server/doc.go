// Package server serves Runners the control plane's list of agents and their timelines, and
// documents these calls.
package server
