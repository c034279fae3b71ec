package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// answerMax bounds what is read of a short HTTP answer.
const answerMax = 4 << 10

// httpGet asks server for path over HTTP. token may be "". The caller closes the
// body, which has no limit of its own. An answer other than 200 is an error.
func (a *app) httpGet(ctx context.Context, server endpoint, path, token string) (*http.Response, error) {
	config, err := a.tlsConfig()
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.http()+path, nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{
		TLSClientConfig:       config,
		TLSHandshakeTimeout:   a.limit(),
		ResponseHeaderTimeout: a.limit(),
		DisableKeepAlives:     true, // one request, and nothing is left behind
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return nil, &codeError{exitUnreachable, err}
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer response.Body.Close()
	return nil, httpError(request.URL.String(), response)
}

// notReadyError is a server that answers, and says why it serves no requests.
type notReadyError struct{ url, text string }

func (e *notReadyError) Error() string { return fmt.Sprintf("GET %s: not ready: %s", e.url, e.text) }

// httpError says what an answer other than 200 means.
func httpError(url string, response *http.Response) error {
	text := firstLine(response.Body)
	switch response.StatusCode {
	case http.StatusUnauthorized:
		return &codeError{exitDenied, fmt.Errorf("GET %s: login failed: the server refused the token (%s); see --token-file", url, text)}
	case http.StatusForbidden:
		return &codeError{exitDenied, fmt.Errorf("GET %s: no permission (%s); see --token-file", url, text)}
	case http.StatusServiceUnavailable:
		if response.Header.Get("Retry-After") != "" {
			return &codeError{exitConflict, fmt.Errorf("GET %s: busy: %s", url, text)}
		}
		return &codeError{exitUnreachable, &notReadyError{url, text}}
	}
	return fmt.Errorf("GET %s: %s: %s", url, response.Status, text)
}

// firstLine reads the first line of an answer.
func firstLine(r io.Reader) string {
	data, _ := io.ReadAll(io.LimitReader(r, answerMax)) // what came is all there is to show
	line, _, _ := strings.Cut(strings.TrimSpace(string(data)), "\n")
	return line
}

// shortAnswer asks server for a short text.
func (a *app) shortAnswer(ctx context.Context, server endpoint, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, a.limit())
	defer cancel()
	response, err := a.httpGet(ctx, server, path, "")
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, answerMax))
	return strings.TrimSpace(string(data)), err
}

// notReady returns what a server that answers HTTP says of why it is not ready.
func (a *app) notReady(ctx context.Context, server endpoint) (string, bool) {
	_, err := a.shortAnswer(ctx, server, "/readyz")
	var reason *notReadyError
	if !errors.As(err, &reason) {
		return "", false
	}
	return reason.text, true
}

// firstAnswer calls ask for each server until one can be reached.
func firstAnswer(servers []endpoint, ask func(endpoint) error) error {
	var failures []error
	for _, server := range servers {
		err := ask(server)
		if err == nil || exitCode(err) != exitUnreachable {
			return err
		}
		failures = append(failures, err)
	}
	return &codeError{exitUnreachable, errors.Join(failures...)}
}
