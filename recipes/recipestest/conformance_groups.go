package recipestest

var (
	pitfallsOfOrder    []pitfall // B 13-24
	pitfallsOfSessions []pitfall // C 25-35
	pitfallsOfTime     []pitfall // D 36-51
	pitfallsOfClosing  []pitfall // E 52-63
	pitfallsOfTokens   []pitfall // J 97-98
)
