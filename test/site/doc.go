// Package site tests the documentation as a site.
package site
