import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/** Executes the SQL statements of a file, the argument; each ends with a semicolon at the end of a line. */
public final class FlinkSqlJob {
  public static void main(String[] arguments) throws Exception {
    TableEnvironment tables = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
    for (String statement : Files.readString(Path.of(arguments[0])).split(";\\s*(\n|$)")) {
      if (!statement.isBlank()) {
        tables.executeSql(statement);
      }
    }
  }
}
