package recipestest

var (
	pitfallsOfOutcomes []pitfall // A 1-12
	pitfallsOfOrder    []pitfall // B 13-24
	pitfallsOfSessions []pitfall // C 25-35
	pitfallsOfTime     []pitfall // D 36-51
	pitfallsOfClosing  []pitfall // E 52-63
	pitfallsOfLocks    []pitfall // F 64-74
	pitfallsOfTokens   []pitfall // J 97-98
)
