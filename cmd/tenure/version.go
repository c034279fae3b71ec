package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is the released version. The linker sets it (-X main.version) for releases.
var version = "0.1.0-dev"

func newVersionCommand(a *app) *cobra.Command {
	servers := false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this command, or of the servers",
		Args:  args("no argument", 0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if servers {
				return a.serverVersions(cmd.Context())
			}
			return a.ownVersion()
		},
	}
	cmd.Flags().BoolVar(&servers, "servers", false, "ask every endpoint for its version, as JSON")
	return cmd
}

func (a *app) ownVersion() error {
	commit := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				commit = setting.Value
			}
		}
	}
	if a.output == outputJSON {
		return a.printJSON(struct {
			Version string `json:"version"`
			Commit  string `json:"commit"`
			Go      string `json:"go"`
		}{version, commit, runtime.Version()})
	}
	_, err := fmt.Fprintf(a.out, "tenure %s, commit %s, %s\n", version, commit, runtime.Version())
	return err
}

// serverVersions prints what each server says of itself.
func (a *app) serverVersions(ctx context.Context) error {
	servers, err := a.tenureServers("version --servers")
	if err != nil {
		return err
	}
	for _, server := range servers {
		text, err := a.shortAnswer(ctx, server, "/version")
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(a.out, "%s %s\n", server.host, safeText(text)); err != nil {
			return err
		}
	}
	return nil
}
