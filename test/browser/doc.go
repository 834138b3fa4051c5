// Package browser tests pages in a real Chromium.
package browser
