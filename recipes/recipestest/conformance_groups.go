package recipestest

var (
	pitfallsOfSessions []pitfall // C 25-35
	pitfallsOfClosing  []pitfall // E 52-63
)
