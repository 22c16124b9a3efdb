"""The paper, reproduced with the library's public interface. Never imported by it."""
