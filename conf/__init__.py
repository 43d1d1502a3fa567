"""What a run is: the YAML files of this folder are the public interface."""
